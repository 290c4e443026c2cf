"""`sfcnn classify`: train, test and use an image classifier."""
