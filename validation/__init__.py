"""Predictions beside published measurements: tables read as they are, every row judged or listed with the reason."""
