"""A page in the browser to try networks on: `sfcnn play`. Needs `pip install 'sfcnn[play]'`.

One module for each tab, with the functions behind it and what is shown: `digits`, `cells`, `own`, `inside`. `app` puts
them together and serves them. Everything is computed and kept on this machine, and the page loads nothing from others.
"""
