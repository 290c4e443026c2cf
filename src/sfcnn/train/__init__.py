"""One trainer that knows no task: settings, the loop, checkpoints, runs. Needs `pip install 'sfcnn[train]'`."""
