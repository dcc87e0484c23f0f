"""Independent computations that the platform's tables are compared with; they share no code with it."""
