"""The data path, one asset a module. An asset places its stage and returns the step; the IO manager runs it."""
