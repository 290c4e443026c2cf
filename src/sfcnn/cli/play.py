"""`sfcnn play`: a page in the browser to try networks on."""

import argparse

from sfcnn.cli.parser import Parser, add_device


def parser(prog: str) -> Parser:
    """Options of `sfcnn play`."""
    parser = Parser(
        prog,
        description="Serve a page to try networks on in a browser: turn digits and micrographs, apply a network of\n"
        "your own, and look at filters and features. Everything stays on this machine: the page loads nothing from\n"
        "others, and what is uploaded is kept in a temporary folder that is removed at the end.",
        examples=(prog, f"{prog} --port 8000", f"{prog} --host 0.0.0.0"),
    )
    parser.add_argument(
        "--host", default="127.0.0.1", help="address to listen on (default 127.0.0.1: this machine only)"
    )
    parser.add_argument("--port", type=int, default=7860, help="port to listen on, 0 for any (default 7860)")
    add_device(parser)
    return parser


def run(prog: str, arguments: argparse.Namespace) -> None:
    """Serve until Ctrl-C."""
    from sfcnn.play.app import serve

    serve(arguments.host, arguments.port, arguments.device, say=lambda line: print(line, flush=True))
