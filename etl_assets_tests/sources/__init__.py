"""Tests of sources that are read in ranges, against real servers."""
