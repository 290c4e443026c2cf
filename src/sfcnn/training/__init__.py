"""Training: settings, tasks, the loop, checkpoints and runs. Needs `pip install 'sfcnn[train]'`."""
