"""`sfcnn classify`: train, test and use a network that tells classes of images."""
