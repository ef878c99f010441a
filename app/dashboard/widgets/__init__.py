"""Pieces that pages are made of: figures, tables, cards, selection boxes, downloads, the offer of the sample."""
