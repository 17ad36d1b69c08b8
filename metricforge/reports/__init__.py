"""Pages and pictures of a fit: `report` (an HTML page), `plotting` (displays)."""
