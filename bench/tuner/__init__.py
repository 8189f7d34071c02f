"""The proof of the tuner: mixes of services and jobs, the oracle of a grid, rivals, and what each reaches."""
