"""The dashboard at `/ui`: one page for a browser, and the lists that it reads a part at a time.

It shows what the monitoring pages show to the same requester, by the same code. It is made of files of this package
alone: no other server is asked, no script or style stands inside the page, and every value reaches the page as text.
"""
