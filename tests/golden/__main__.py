import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.golden import CASES, changed, reason_to_skip, write


def main(words: list[str]) -> int:
    cases = [word for word in words if word != "write"] or [*CASES]
    if unknown := {*cases} - {*CASES}:
        print(f"{', '.join(unknown)}: no case; one of {', '.join(CASES)}")
        return 2
    code = 0
    for case in cases:
        with TemporaryDirectory() as folder:
            if "write" in words:
                write(case, Path(folder))
                continue
            reason = reason_to_skip(case)
            names = [] if reason else changed(case, Path(folder))
            print(f"{case}: {reason or ', '.join(names) or 'same'}", flush=True)
            code |= bool(names)
    return code


sys.exit(main(sys.argv[1:]))
