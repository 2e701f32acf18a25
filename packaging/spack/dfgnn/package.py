# Put the folder of this file into a Spack repository's packages/.
from spack.package import *


class Dfgnn(AutotoolsPackage):
    """Fused, autotuned kernels for attention graph neural networks."""

    # A release's tarball is fetched from where you got dfgnn; a checkout is
    # named by `spack dev-build` or `spack install dfgnn dev_path=...`.
    license("Apache-2.0")

    version("0.3.0")

    variant("metis", default=True, description="Order graphs by METIS too")
    variant("python", default=True, description="Install the PyTorch package")

    depends_on("c", type="build")
    depends_on("cxx", type="build")
    depends_on("autoconf", type="build")
    depends_on("automake", type="build")
    depends_on("libtool", type="build")
    depends_on("pkgconfig", type="build")
    depends_on("jq", type="build")
    depends_on("sqlite@3.37:")
    depends_on("libsodium")
    depends_on("minizip")
    depends_on("xz")
    depends_on("zlib-api")
    depends_on("jansson")
    depends_on("util-linux")
    depends_on("check")
    depends_on("metis", when="+metis")
    extends("python", when="+python")
    depends_on("py-torch", when="+python", type="run")

    def configure_args(self):
        return self.with_or_without("metis")

    @run_after("install")
    def install_python(self):
        if self.spec.satisfies("+python"):
            package = join_path(python_platlib, "dfgnn")
            install_tree("python/dfgnn", package)
            install_tree("include", join_path(package, "include"))
