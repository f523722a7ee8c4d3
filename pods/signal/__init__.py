"""Which algorithm and sizes learn fastest, from gradients of the rollouts of one policy.

sketch (a gradient in 4,096 numbers) -> record (rollouts and their gradients) -> pool (one file)
    -> simulate (updates of any algorithm) -> compare (their signal a second)
"""
