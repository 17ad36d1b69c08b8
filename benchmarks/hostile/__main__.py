"""A worker of the campaign: `worker.Worker` starts it."""

from .worker import main

main()
