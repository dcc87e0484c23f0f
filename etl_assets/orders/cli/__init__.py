"""The commands that exist only for the orders pipeline. They are on top: nothing else of it imports them."""
