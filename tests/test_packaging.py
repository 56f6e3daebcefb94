import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """The sdist, and the wheel that is built from it."""
    out = tmp_path_factory.mktemp("dist")
    code = (
        "import os, sys; from hatchling import build; os.chdir(sys.argv[1]); "
        "print(build.build_sdist(sys.argv[2]) if sys.argv[3] == 'sdist' else build.build_wheel(sys.argv[2]))"
    )
    subprocess.run([sys.executable, "-c", code, str(ROOT), str(out), "sdist"], check=True, capture_output=True)
    (sdist,) = out.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(out / "source", filter="data")
    (source,) = (out / "source").iterdir()
    subprocess.run([sys.executable, "-c", code, str(source), str(out), "wheel"], check=True, capture_output=True)
    (wheel,) = out.glob("*.whl")
    return wheel


def test_the_wheel_holds_every_file_of_the_package(built):
    tree = {
        str(path.relative_to(ROOT)) for path in (ROOT / "lightning_dr").rglob("*") if path.is_file() and "__pycache__" not in path.parts
    }
    packed = {name for name in zipfile.ZipFile(built).namelist() if ".dist-info/" not in name}
    assert packed == tree


def test_it_works_from_the_wheel_elsewhere(built, tmp_path):
    zipfile.ZipFile(built).extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, 'site'); import lightning_dr; from lightning_dr.cli import CONFIGS; "
        "from lightning_dr.modules import Backbone, BackboneConfig; Backbone(BackboneConfig(name_or_path='toy')); "
        "print(lightning_dr.__file__, (CONFIGS / 'toy.yaml').is_file())"
    )
    result = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr[-1500:]
    file, has_config = result.stdout.split()
    assert (tmp_path / file).resolve() == (tmp_path / "site" / "lightning_dr" / "__init__.py").resolve()
    assert has_config == "True"
