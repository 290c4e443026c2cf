"""A web page for trying networks: `sfcnn play`. Needs `pip install 'sfcnn[play]'`.

Each tab has a module with its functions and layout: `digits`, `cells`, `own`, `inside`. `app` assembles and serves the
page. Everything is computed and kept on this machine, and the page loads nothing from elsewhere.
"""
