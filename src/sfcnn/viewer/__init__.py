"""A plugin for the image viewer napari: segment a layer with a trained network. Needs `pip install 'sfcnn[napari]'`.

napari finds it by `napari.yaml`, which lies here. Qt is imported when the widget is opened, not before.
"""
