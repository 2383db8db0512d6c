"""Copies the pages into the directory that is its argument, and all that they link to.

A directory that is linked becomes a page with its files.
"""

import pathlib
import re
import shutil
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
LINK = re.compile(r'(?:\]\(|src="|srcset=")(?!\w+:)([^)"#: ]+)')


def files_below(directory):
    return sorted(p for p in directory.rglob("*") if p.is_file() and "node_modules" not in p.parts)


def stage(to):
    shutil.rmtree(to, ignore_errors=True)
    wanted = [*ROOT.glob("*.md"), *ROOT.glob("docs/*.md")]
    done = set()
    while wanted:
        path = wanted.pop()
        if path in done:
            continue
        done.add(path)
        name = path.relative_to(ROOT)
        if path.is_dir():
            lines = [f"- [{p.relative_to(path)}]({p.relative_to(path)})" for p in files_below(path)]
            (to / name).mkdir(parents=True, exist_ok=True)
            (to / name / "index.md").write_text(f"# {name}\n\n" + "\n".join(lines) + "\n")
            wanted += files_below(path)
            continue
        (to / name).parent.mkdir(parents=True, exist_ok=True)
        text = path.read_bytes()
        if path.suffix == ".md":
            page = text.decode()
            # The generator knows pages and files, and no directories.
            for link in set(LINK.findall(page)):
                target = (path.parent / link).resolve()
                if not target.exists():
                    sys.exit(f"{name} links to {link}, and that is not there")
                wanted.append(target)
                if target.is_dir():
                    page = page.replace(f"]({link})", f"]({link.rstrip('/')}/index.md)")
            text = page.encode()
        (to / name).write_bytes(text)


stage(pathlib.Path(sys.argv[1]))
