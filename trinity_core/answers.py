"""Reading answers out of text: the reasoning split off, the committed answer, and whether two values agree.

Used by specialists (to check an answer), by the loop (to choose the final one) and by graders.
"""
