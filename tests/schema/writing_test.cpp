// SPDX-License-Identifier: Apache-2.0
//
// A file is written completely or not at all, and always with the same bytes.
#include <fcntl.h>
#include <sys/file.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <csignal>
#include <cstdlib>
#include <vector>

#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

// The child may not write files beyond `bytes`: what a full disk does, without one. It exits with
// 0 when write_fixture threw an Error(kFile) that names the file, and nothing else went wrong.
int write_under_limit(const std::filesystem::path& path, const Fixture& fixture, rlim_t bytes) {
  const pid_t child = ::fork();
  REQUIRE(child >= 0);
  if (child == 0) {
    std::signal(SIGXFSZ, SIG_IGN);  // then the write fails with EFBIG instead
    const rlimit limit{bytes, bytes};
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) ::_exit(3);
    try {
      write_fixture(path, fixture);
      ::_exit(1);
    } catch (const Error& e) {
      ::_exit(e.kind() == ErrorKind::kFile && e.file() == path.string() ? 0 : 2);
    }
  }
  int status = 0;
  REQUIRE(::waitpid(child, &status, 0) == child);
  REQUIRE(WIFEXITED(status));
  return WEXITSTATUS(status);
}

TEST_CASE("a full disk leaves the old file, or none, and no partial one") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const Fixture fixture = small_fixture();
  write_fixture(path, fixture);
  const std::string whole = file_bytes(path);
  const std::filesystem::path fresh = dir / "fresh.h5";
  const std::vector<std::size_t> limits{0, 1, 4096, whole.size() / 2, whole.size() - 1};
  for (const std::size_t limit : limits) {
    CAPTURE(limit);
    CHECK(write_under_limit(fresh, fixture, limit) == 0);
    CHECK_FALSE(std::filesystem::exists(fresh));
    CHECK(write_under_limit(path, small_fixture(4), limit) == 0);
    CHECK(file_bytes(path) == whole);
  }
  CHECK(std::distance(std::filesystem::directory_iterator(dir.path()), {}) == 1);
  CHECK(write_under_limit(fresh, fixture, whole.size()) == 1);  // the limit is what failed above
}

TEST_CASE("a directory that is missing or closed") {
  const TemporaryDirectory dir;
  try {
    write_fixture(dir / "none/f.h5", small_fixture());
    FAIL_CHECK("written");
  } catch (const Error& e) {
    CHECK(e.kind() == ErrorKind::kFile);
    CHECK(e.expected() == "a writable directory");
    CHECK(e.actual() == "No such file or directory");
  }
}

TEST_CASE("the leavings of a killed writer are taken over, a live writer is not disturbed") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_bytes(dir / "f.h5.partial", std::string(1 << 20, 'x'));
  write_fixture(path, small_fixture());
  CHECK_FALSE(std::filesystem::exists(dir / "f.h5.partial"));
  write_fixture(dir / "other.h5", small_fixture());
  CHECK(file_bytes(path) == file_bytes(dir / "other.h5"));  // nothing of the leavings is left

  write_bytes(dir / "f.h5.partial", "half a file");
  const int fd = ::open((dir / "f.h5.partial").c_str(), O_RDWR);
  REQUIRE(::flock(fd, LOCK_EX) == 0);
  CHECK_THROWS_WITH_AS(write_fixture(path, small_fixture()),
                       doctest::Contains("no other writer of f.h5.partial"), Error);
  CHECK(file_bytes(dir / "f.h5.partial") == "half a file");
  ::close(fd);
}

TEST_CASE("a link planted under the partial name is not followed") {
  const TemporaryDirectory dir;
  write_bytes(dir / "precious", "content");
  std::filesystem::create_symlink(dir / "precious", dir / "f.h5.partial");
  CHECK_THROWS_AS(write_fixture(dir / "f.h5", small_fixture()), Error);
  CHECK(file_bytes(dir / "precious") == "content");
}

// Times in the file would differ, and so would uninitialised memory: the heap is dirtied between.
TEST_CASE("the same fixture gives the same bytes in another second") {
  const TemporaryDirectory dir;
  for (const std::int64_t V : {3, 8000}) {
    CAPTURE(V);
    write_fixture(dir / "a.h5", small_fixture(V));
    {
      std::vector<std::string> dirt;
      for (std::size_t n = 16; n < (std::size_t{8} << 20); n += n / 2) dirt.emplace_back(n, '\xa5');
    }
    ::sleep(1);
    ::usleep(100000);
    write_fixture(dir / "b.h5", small_fixture(V));
    CHECK(file_bytes(dir / "a.h5") == file_bytes(dir / "b.h5"));
    // Reading and writing again changes nothing either.
    write_fixture(dir / "c.h5", read_fixture(dir / "a.h5"));
    CHECK(file_bytes(dir / "a.h5") == file_bytes(dir / "c.h5"));
  }
}

TEST_CASE("the library leaves the HDF5 error printing of its user alone") {
  const auto print = [](hid_t, void*) -> herr_t { return 0; };
  H5E_auto2_t before = nullptr;
  void* data_before = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &before, &data_before);
  int marker = 0;
  H5Eset_auto2(H5E_DEFAULT, print, &marker);
  const TemporaryDirectory dir;
  write_fixture(dir / "f.h5", small_fixture());
  (void)read_fixture(dir / "f.h5");
  H5E_auto2_t after = nullptr;
  void* data_after = nullptr;
  H5Eget_auto2(H5E_DEFAULT, &after, &data_after);
  unsigned plugins = 0;
  H5PLget_loading_state(&plugins);
  H5Eset_auto2(H5E_DEFAULT, before, data_before);
  const bool restored = after == static_cast<H5E_auto2_t>(print);
  CHECK(restored);
  CHECK(data_after == &marker);
  CHECK(plugins == H5PL_ALL_PLUGIN);
  CHECK(H5Fget_obj_count(H5F_OBJ_ALL, H5F_OBJ_ALL) == 0);  // every handle was given back
}

}  // namespace
}  // namespace goldenrule::schema
