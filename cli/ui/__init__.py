"""`slipstick ui`: the live slide rule, a page of this machine alone on which every number can be dragged."""
