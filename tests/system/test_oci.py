"""OCI images of Triton caches: skopeo reads what export writes, the image holds the same cache, and import reads it back."""

import gzip
import hashlib
import io
import json
import shutil
import subprocess
import tarfile

import harness
import pytest
from harness import wavetune
from test_triton_deployment import KEYS, MAIN, MI300X, WINNER, fetched, packed, version  # noqa: F401

pytestmark = pytest.mark.parametrize("version", [MAIN], indirect=True)
ROOT = "/mnt/cache"


@pytest.fixture
def image(server, fetched, packed, tmp_path):
    """A folder with the image of a release with compiled code."""
    export(server, packed, tmp_path / "image", "--root", ROOT)
    return tmp_path / "image"


def export(server, packed, to, *more, option="--oci", **options):
    return wavetune(server, "export", "stable", option, to, "--environment", json.dumps({**MI300X, "triton": MAIN}), "--identity",
                    packed / "identity.json", *more, **options)


def blob(image, descriptor):
    content = (image / "blobs/sha256" / descriptor["digest"].removeprefix("sha256:")).read_bytes()
    assert "sha256:" + hashlib.sha256(content).hexdigest() == descriptor["digest"] and len(content) == descriptor["size"]
    return content


def parts(image):
    """The image's manifest, config and the one layer, unpacked."""
    (descriptor,) = json.loads((image / "index.json").read_text())["manifests"]
    manifest = json.loads(blob(image, descriptor))
    (layer,) = manifest["layers"]
    return manifest, json.loads(blob(image, manifest["config"])), gzip.decompress(blob(image, layer))


def tree(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_an_image_has_the_release_s_cache_in_the_form_that_mcv_extracts(server, packed, image, tmp_path):
    manifest, config, layer = parts(image)
    assert manifest["layers"][0]["mediaType"] == "application/vnd.oci.image.layer.v1.tar+gzip"
    assert config["rootfs"]["diff_ids"] == ["sha256:" + hashlib.sha256(layer).hexdigest()]
    files = {}
    with tarfile.open(fileobj=io.BytesIO(layer)) as archive:
        for member in archive:
            assert (member.mtime, member.uid, member.gid) == (0, 0, 0)
            if member.isfile():
                files[member.name] = archive.extractfile(member).read()
    stated = json.loads(files.pop("io.triton.manifest/manifest.json"))["triton"]
    cache = {name.removeprefix("io.triton.cache/"): content for name, content in files.items()}
    export(server, packed, tmp_path / "files", "--root", ROOT, "--format", "triton", option="--to")
    assert cache == tree(tmp_path / "files"), "the same files as of the export to a folder"

    labels = config["config"]["Labels"]
    compiled = [json.loads(content) for name, content in cache.items()
                if name.endswith(".json") and "hash" in json.loads(content)]
    assert len(compiled) >= 1 and sorted(e["hash"] for e in stated) == sorted(c["hash"] for c in compiled)
    assert labels["cache.triton.image/entry-count"] == str(len(compiled))
    assert labels["cache.triton.image/cache-size-bytes"] == str(sum(map(len, cache.values())))
    assert json.loads(labels["cache.triton.image/summary"]) == {
        "targets": [{"backend": "hip", "arch": "gfx942", "warp_size": 64}]}
    assert all((e["backend"], e["arch"], e["warp_size"]) == ("hip", "gfx942", 64) for e in stated)
    groups = [json.loads(content) for name, content in cache.items() if "__grp__" in name]
    assert groups and all(path.startswith(ROOT + "/") for group in groups for path in group["child_paths"].values())


def test_the_same_release_makes_the_same_image_byte_for_byte(server, packed, image, tmp_path):
    export(server, packed, tmp_path / "again", "--root", ROOT)
    assert tree(tmp_path / "again") == tree(image)


def test_skopeo_inspects_and_copies_an_image(image, tmp_path):
    seen = json.loads(subprocess.run(["skopeo", "inspect", f"oci:{image}"], capture_output=True, check=True).stdout)
    assert seen["Labels"]["cache.triton.image/entry-count"] != "0" and len(seen["Layers"]) == 1
    for copy in (f"docker-archive:{tmp_path}/image.tar:wavetune/cache:1", f"oci:{tmp_path}/copy:1"):
        subprocess.run(["skopeo", "--insecure-policy", "copy", f"oci:{image}", copy], capture_output=True, check=True)
    assert parts(tmp_path / "copy") == parts(image)


def test_an_imported_image_is_published_and_exported_as_the_same_results(server, postgres, packed, image, tmp_path):
    wanted = {name: content for name, content in tree_of_layer(image).items() if name.endswith(".autotune.json")}
    postgres.sql("TRUNCATE jobs, winners, kernels, releases, channels CASCADE", conninfo=server.database)
    environment = json.dumps({**MI300X, "triton": MAIN})
    took = json.loads(wavetune(server, "import", "triton", image, "--environment", environment, "--json").stdout)
    assert sum(kernel["entries"] for kernel in took["kernels"]) == took["added"] == len(wanted) == len(KEYS)
    release = json.loads(wavetune(server, "publish", "--environment", environment, "--json").stdout)["release"]
    wavetune(server, "export", release, "--format", "triton", "--to", tmp_path / "out")
    again = tree(tmp_path / "out")
    assert again.keys() == wanted.keys()
    for name, content in wanted.items():
        ours, theirs = (json.loads(c)["configs_timings"] for c in (again[name], content))
        assert [config for config, _ in ours] == [config for config, _ in theirs], name


def tree_of_layer(image):
    with tarfile.open(fileobj=io.BytesIO(parts(image)[2])) as archive:
        return {m.name.removeprefix("io.triton.cache/"): archive.extractfile(m).read() for m in archive if m.isfile()}


def test_an_image_that_is_not_whole_is_refused_and_nothing_is_imported(server, image, tmp_path):
    def refused(*change, sentence):
        copy = tmp_path / "bad"
        shutil.rmtree(copy, ignore_errors=True)
        shutil.copytree(image, copy)
        for name, content in change:
            (copy / name).unlink() if content is None else (copy / name).write_bytes(content)
        done = wavetune(server, "import", "triton", copy, check=False)
        assert done.returncode == 2 and sentence in done.stderr, done

    manifest, _, layer = parts(image)
    name = "blobs/sha256/" + manifest["layers"][0]["digest"].removeprefix("sha256:")
    refused((name, (image / name).read_bytes() + b"x"), sentence="other bytes")
    refused((name, None), sentence="No such file")
    refused(("index.json", b'{"manifests": []}'), sentence="lists 0 images")
    refused(("index.json", b"{"), sentence="index.json")
    for member, sentence in (("io.triton.cache/a/../../x.autotune.json", "leaves its folder"), ("other/x.autotune.json", "has no"),
                             ("io.triton.cache/a\nb/x.autotune.json", "control characters")):
        refused(*layered(image, member), sentence=sentence)
    refused(*layered(image, "io.triton.cache/a/x.autotune.json", twice=True), sentence="twice")
    refused(*layered(image, None), sentence="layer 1")
    assert server.items("/v1/imports") == []
    done = wavetune(server, "import", "dejavu", image, check=False)
    assert done.returncode == 2 and "import it as triton" in done.stderr


def layered(image, member, twice=False):
    """The files that make the image one with another layer: a tar with one member, or (None) no archive."""
    out = io.BytesIO()
    if member:
        with tarfile.open(fileobj=out, mode="w:gz") as archive:
            for _ in range(1 + twice):
                info = tarfile.TarInfo(member)
                info.size = 2
                archive.addfile(info, io.BytesIO(b"{}"))
    return with_layers(out.getvalue() or b"no archive at all")


def with_layers(*layers):
    """The files that make an image one with these layers."""
    manifest = json.dumps({"layers": [{"digest": digest(layer), "size": len(layer)} for layer in layers]}).encode()
    index = json.dumps({"manifests": [{"digest": digest(manifest), "size": len(manifest)}]}).encode()
    return (*((f"blobs/sha256/{digest(content)[7:]}", content) for content in {*layers, manifest}), ("index.json", index))


def test_an_image_with_too_many_layers_or_too_much_in_them_is_refused(server, image):
    def refused(*layers, sentence):
        for name, content in with_layers(*layers):
            (image / name).write_bytes(content)
        done = wavetune(server, "import", "triton", image, check=False)
        assert done.returncode == 2 and sentence in done.stderr, done

    def stating(size, data=b""):
        """A layer whose header states an entry of so many bytes, and only this data after it."""
        info = tarfile.TarInfo("usr/lib/librocblas.so")
        info.size = size
        return gzip.compress(info.tobuf(tarfile.GNU_FORMAT) + data)

    empty = gzip.compress(tarfile.NUL * tarfile.RECORDSIZE)
    refused(*[empty] * 127, sentence="has no")
    refused(*[empty] * 128, sentence="the image has 128 layers, at most 127 are read")
    refused(stating(9 << 30), sentence="layer 1: the image unpacks to more than 8 GiB")
    # The limit is that of all layers together.
    almost = stating((8 << 30) - (512 << 10))
    refused(almost, sentence="Truncated")
    mebibyte = stating(1 << 20, bytes(1 << 20) + tarfile.NUL * tarfile.RECORDSIZE)
    refused(mebibyte, almost, sentence="layer 2: the image unpacks to more than 8 GiB")


def digest(content):
    return "sha256:" + hashlib.sha256(content).hexdigest()


def test_an_image_that_cannot_be_made_is_refused(server, packed, fetched, tmp_path):
    for more, sentence in ((("--to", tmp_path / "y"), "not both"), (("--root", "cache"), "absolute path"),
                           (("--format", "json"), "cache of Triton")):
        done = export(server, packed, tmp_path / "x", *more, check=False)
        assert done.returncode == 2 and sentence in done.stderr and not (tmp_path / "x").exists(), done
    (tmp_path / "release.json").write_bytes(
        server.request("GET", "/v1/releases/" + server.items("/v1/releases")[0]["release"]).body)
    done = wavetune(None, "export", tmp_path / "release.json", "--oci", tmp_path / "x", "--identity", packed / "identity.json",
                    check=False)
    assert done.returncode == 1 and "no compiled code" in done.stderr and not (tmp_path / "x").exists(), done
