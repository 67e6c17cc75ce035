"""
What a feature is made of, whatever it is deployed on.

Nothing here imports the engine or a cloud's library: a deployment gives its own
implementations of the ports in `ports.py` and `dal.py`.
"""
