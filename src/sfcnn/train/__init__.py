"""A trainer for any task: settings, the loop, checkpoints, runs. Needs `pip install 'sfcnn[train]'`."""
