"""`sfcnn play`: an interactive page in the browser to try networks."""

import argparse

from sfcnn.cli.parser import Parser, add_device


def parser(prog: str) -> Parser:
    """Options of `sfcnn play`."""
    parser = Parser(
        prog,
        description="Serve a page to try networks in a browser: rotate digits and micrographs, apply your own\n"
        "network, and inspect filters and features. Everything stays on this machine: the page loads nothing from\n"
        "other servers, and uploads are kept in a temporary folder that is removed on exit.",
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
