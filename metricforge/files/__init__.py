"""Files of any kind: written as a whole or not at all, and checked before their content is used."""
