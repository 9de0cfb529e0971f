"""Answers known from elsewhere: closed forms, enumeration, coordinate ascent written by hand."""
