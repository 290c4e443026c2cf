"""A napari plugin: segment a layer with a trained network. Requires `pip install 'sfcnn[napari]'`.

napari finds it through `napari.yaml` in the folder above, without importing anything. Qt is imported only when the
widget is opened.
"""
