// SPDX-License-Identifier: Apache-2.0
//
// Length: one test per way to ask for something, over one watcher of the kernel.
//
// Files that ask for something: to read another file, to run a plug-in, to take all memory. Each
// is refused before anything is read; for those that name another file, the kernel itself (inotify)
// says that the file was not opened.
#include <sys/inotify.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/schema/support.hpp"

namespace goldenrule::schema {
namespace {

/// Counts how often a file is opened.
class OpenWatch {
 public:
  explicit OpenWatch(const std::filesystem::path& path)
      : fd_(::inotify_init1(IN_NONBLOCK | IN_CLOEXEC)) {
    REQUIRE(fd_ >= 0);
    REQUIRE(::inotify_add_watch(fd_, path.c_str(), IN_OPEN | IN_ACCESS) >= 0);
  }
  OpenWatch(const OpenWatch&) = delete;
  OpenWatch& operator=(const OpenWatch&) = delete;
  ~OpenWatch() { ::close(fd_); }
  [[nodiscard]] bool seen() const {
    std::array<char, 4096> events{};
    return ::read(fd_, events.data(), events.size()) > 0;
  }

 private:
  int fd_;
};

// Another file of the same user, with a dataset that would fit.
std::filesystem::path make_secret(const TemporaryDirectory& dir) {
  auto path = dir / "secret.h5";
  write_edited(path, [](hid_t f) {
    const std::array<float, 12> data{};
    put_dataset(f, "/secret", H5T_IEEE_F32LE, {2, 3, 2}, H5P_DEFAULT, data.data());
  });
  return path;
}

TEST_CASE("the watch sees an opened file") {
  const TemporaryDirectory dir;
  const auto secret = make_secret(dir);
  const OpenWatch watch(secret);
  CHECK_FALSE(watch.seen());
  (void)file_bytes(secret);
  CHECK(watch.seen());
}

TEST_CASE("links that lead elsewhere") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const auto secret = make_secret(dir);
  const OpenWatch watch(secret);
  write_edited(path, [&](hid_t f) {
    H5Ldelete(f, "/inputs/b", H5P_DEFAULT);
    H5Lcreate_external(secret.c_str(), "/secret", f, "/inputs/b", H5P_DEFAULT, H5P_DEFAULT);
  });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "a hard link", "an external link");
  write_edited(path, [&](hid_t f) {
    H5Ldelete(f, "/outputs", H5P_DEFAULT);
    H5Lcreate_external(secret.c_str(), "/outputs", f, "/outputs", H5P_DEFAULT, H5P_DEFAULT);
  });
  check_refused(path, ErrorKind::kUnsafe, "/outputs", "a hard link", "an external link");
  write_edited(path, [&](hid_t f) {
    H5Ldelete(f, "/inputs/b", H5P_DEFAULT);
    H5Lcreate_soft("/inputs/a", f, "/inputs/b", H5P_DEFAULT, H5P_DEFAULT);
  });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "a hard link", "a soft link");
  CHECK_FALSE(watch.seen());
}

TEST_CASE("data that lie in other files") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const auto secret = make_secret(dir);
  const OpenWatch watch(secret);
  const hid_t external = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_external(external, secret.c_str(), 0, 48);
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/b", H5T_IEEE_F32LE, {2, 3, 2}, external);
  });
  H5Pclose(external);
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "in this file", "external storage");

  // Unlimited along one axis: HDF5 opens the source files to learn the extent.
  const std::array<hsize_t, 1> extent{12};
  const std::array<hsize_t, 1> unlimited{H5S_UNLIMITED};
  const std::array<hsize_t, 1> zero{0};
  const std::array<hsize_t, 1> one{1};
  const hid_t source = H5Screate_simple(1, extent.data(), unlimited.data());
  const hid_t target = H5Screate_simple(1, extent.data(), unlimited.data());
  for (const hid_t space : {source, target}) {
    H5Sselect_hyperslab(space, H5S_SELECT_SET, zero.data(), one.data(), unlimited.data(),
                        one.data());
  }
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  REQUIRE(H5Pset_virtual(dcpl, target, secret.c_str(), "/secret", source) >= 0);
  write_edited(path, [&](hid_t f) {
    H5Ldelete(f, "/inputs/A_log", H5P_DEFAULT);
    const hid_t d =
        H5Dcreate2(f, "/inputs/A_log", H5T_IEEE_F32LE, target, H5P_DEFAULT, dcpl, H5P_DEFAULT);
    REQUIRE(d >= 0);
    H5Dclose(d);
  });
  (void)watch.seen();  // making a virtual dataset may look at its sources
  check_refused(path, ErrorKind::kUnsafe, "/inputs/A_log", "in this file", "a virtual dataset");
  for (const hid_t space : {source, target}) H5Sclose(space);
  H5Pclose(dcpl);
  CHECK_FALSE(watch.seen());
}

TEST_CASE("objects that are neither groups nor datasets") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const auto commit = [](hid_t f, const char* name) {
    const hid_t type = H5Tcopy(H5T_IEEE_F32LE);
    REQUIRE(H5Tcommit2(f, name, type, H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT) >= 0);
    return type;
  };
  write_edited(path, [&](hid_t f) { H5Tclose(commit(f, "/inputs/type")); });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/type", "a group or a dataset", "committed");
  write_edited(path, [&](hid_t f) {
    const hid_t type = commit(f, "/type");
    const std::array<float, 12> data{};
    put_dataset(f, "/inputs/b", type, {2, 3, 2}, H5P_DEFAULT, data.data());
    H5Ldelete(f, "/type", H5P_DEFAULT);  // the dataset keeps it alive
    H5Tclose(type);
  });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "a datatype of its own", "committed");
}

TEST_CASE("filters beyond shuffle, deflate and fletcher32") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const auto refuse = [&](const std::function<void(hid_t)>& set, const std::string& actual) {
    const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
    const std::array<hsize_t, 3> chunk{2, 3, 2};
    H5Pset_chunk(dcpl, 3, chunk.data());
    set(dcpl);
    write_edited(path, [&](hid_t f) {
      put_dataset(f, "/inputs/b", H5T_IEEE_F32LE, {2, 3, 2}, dcpl);
    });
    H5Pclose(dcpl);
    check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "filters shuffle, deflate", actual);
  };
  const std::array<unsigned, 2> parameters{1, 2};
  constexpr H5Z_filter_t kBlosc = 32001;
  refuse([&](hid_t p) { H5Pset_filter(p, kBlosc, H5Z_FLAG_OPTIONAL, 2, parameters.data()); },
         "filter 32001");
  refuse([](hid_t p) { H5Pset_scaleoffset(p, H5Z_SO_FLOAT_DSCALE, 3); }, "filter 6");
  refuse(
      [](hid_t p) {
        H5Pset_deflate(p, 1);
        H5Pset_deflate(p, 1);
      },
      "(deflate) again");
}

TEST_CASE("extents that the file cannot fill are refused before they are allocated") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const std::vector<hsize_t> huge{1U << 20, 1U << 20, 1U << 10};  // 2^50 elements
  write_edited(path, [&](hid_t f) { put_dataset(f, "/inputs/b", H5T_IEEE_F32LE, huge); });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "0 bytes (all that the file stores)",
                "4503599627370496 bytes of shape [1048576,1048576,1024]");
  write_edited(path, [&](hid_t f) {
    put_dataset(f, "/inputs/b", H5T_IEEE_F64LE, {1ULL << 40, 1ULL << 40});  // 2^83 bytes
  });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "at most the ", "[1099511627776,");

  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const std::array<hsize_t, 3> chunk{1, 1, 1 << 10};
  H5Pset_chunk(dcpl, 3, chunk.data());
  H5Pset_deflate(dcpl, 9);
  write_edited(path, [&](hid_t f) { put_dataset(f, "/inputs/b", H5T_IEEE_F32LE, huge, dcpl); });
  check_refused(path, ErrorKind::kUnsafe, "/inputs/b", "(all that the 0 bytes stored",
                "4503599627370496 bytes");
  H5Pclose(dcpl);
}

// The headers of an old-format file have no checksum: anybody can write a number into them.
void make_old_format(const std::filesystem::path& path, const std::function<void(hid_t)>& fill) {
  const hid_t f = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  put_attribute(f, "/", "schema", std::string("goldenrule/1"));
  put_attribute(f, "/", "op", std::string("kda"));
  put_attribute(f, "/", "mode", std::string("decode"));
  H5Gclose(H5Gcreate2(f, "inputs", H5P_DEFAULT, H5P_DEFAULT, H5P_DEFAULT));
  fill(f);
  REQUIRE(H5Fclose(f) >= 0);
}

// Replaces a number wherever it stands; it must be one that occurs nowhere else.
template <class T>
void patch(const std::filesystem::path& path, T from, T to) {
  std::string bytes = file_bytes(path);
  const std::string pattern(reinterpret_cast<const char*>(&from), sizeof from);
  std::size_t found = 0;
  for (std::size_t at = 0; (at = bytes.find(pattern, at)) != std::string::npos; ++at) {
    std::memcpy(bytes.data() + at, &to, sizeof to);
    ++found;
  }
  REQUIRE(found >= 1);
  write_bytes(path, bytes);
}

TEST_CASE("a patched extent of stored data") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const auto store = [&](hid_t dcpl) {
    make_old_format(path, [&](hid_t f) {
      const std::vector<float> data(7919, 1.0F);
      put_dataset(f, "/inputs/q", H5T_IEEE_F32LE, {7919}, dcpl, data.data());
    });
  };
  const hsize_t extent = 7919;
  store(H5P_DEFAULT);
  patch<hsize_t>(path, extent, 1ULL << 40);
  check_refused(path, ErrorKind::kUnsafe, "/inputs/q", "31676 bytes (all that the file stores)",
                "4398046511104 bytes");
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const hsize_t chunk = 4000;
  H5Pset_chunk(dcpl, 1, &chunk);
  store(dcpl);
  patch<hsize_t>(path, extent, 1ULL << 40);
  check_refused(path, ErrorKind::kUnsafe, "/inputs/q", "all that the 32000 bytes stored",
                "4398046511104 bytes");
  H5Pset_deflate(dcpl, 4);
  store(dcpl);
  patch<hsize_t>(path, extent, 12001);  // believable, but the third and fourth chunk do not exist
  check_refused(path, ErrorKind::kUnsafe, "/inputs/q", "every chunk stored", "chunk at [8000]");
  H5Pclose(dcpl);
}

TEST_CASE("patched attributes") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  make_old_format(path, [](hid_t f) {
    const hsize_t extent = 7919;
    const hid_t space = H5Screate_simple(1, &extent, nullptr);
    const hid_t a = H5Acreate2(f, "comment", H5T_STD_I8LE, space, H5P_DEFAULT, H5P_DEFAULT);
    const std::vector<std::int8_t> data(extent);
    REQUIRE(H5Awrite(a, H5T_STD_I8LE, data.data()) >= 0);
    H5Aclose(a);
    H5Sclose(space);
  });
  patch<hsize_t>(path, 7919, 1ULL << 33);
  check_refused(path, ErrorKind::kFile, "/", "a sound object header",
                "claims more than its message holds");

  const auto with_source = [&] {
    make_old_format(path, [](hid_t f) { put_attribute(f, "/", "source", std::string(4099, 's')); });
  };
  with_source();
  patch<std::uint32_t>(path, 4099, 60000);  // in the attribute, and in the heap that it refers to
  check_refused(path, ErrorKind::kFile, "/@source", "a string in a global heap",
                "an object beyond the end of its heap");
  with_source();
  patch<std::uint64_t>(path, 4099, 4000);  // in the heap alone: the attribute's length has 4 bytes
  check_refused(path, ErrorKind::kFile, "/@source", "a string in a global heap",
                "4000 of 4099 bytes");
}

TEST_CASE("a chunk that inflates to something else") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  const hid_t dcpl = H5Pcreate(H5P_DATASET_CREATE);
  const std::array<hsize_t, 3> chunk{2, 3, 2};
  H5Pset_chunk(dcpl, 3, chunk.data());
  H5Pset_deflate(dcpl, 4);
  const auto refuse = [&](const std::string& stored, std::uint32_t mask, ErrorKind kind,
                          const std::string& expected, const std::string& actual) {
    write_edited(path, [&](hid_t f) {
      put_dataset(f, "/inputs/b", H5T_IEEE_F32LE, {2, 3, 2}, dcpl);
      const hid_t d = H5Dopen2(f, "/inputs/b", H5P_DEFAULT);
      const std::array<hsize_t, 3> origin{0, 0, 0};
      REQUIRE(H5Dwrite_chunk(d, H5P_DEFAULT, mask, origin.data(), stored.size(), stored.data()) >=
              0);
      H5Dclose(d);
    });
    check_refused(path, kind, "/inputs/b", expected, actual);
  };
  // Deflated "stored" blocks of 4 and of 60 zero bytes, for a chunk of 48.
  const auto zlib_stored = [](unsigned char n) {
    const auto adler = static_cast<unsigned char>(n);  // sum a = 1, sum b = n for n zeros
    std::string s{"\x78\x01\x01", 3};
    s += {static_cast<char>(n), 0, static_cast<char>(~n), static_cast<char>(0xff)};
    return s + std::string(n, '\0') + std::string{0, static_cast<char>(adler), 0, 1};
  };
  refuse(zlib_stored(4), 0, ErrorKind::kValue, "yields 48 bytes", "a damaged chunk (4 bytes");
  refuse(zlib_stored(60), 0, ErrorKind::kValue, "yields 48 bytes", "a damaged chunk");
  refuse(std::string(47, 'x'), 0, ErrorKind::kValue, "yields 48 bytes", "a damaged chunk");
  refuse(std::string(47, 'x'), 1, ErrorKind::kValue, "a chunk of 48 bytes", "47 bytes");
  H5Pclose(dcpl);
}

TEST_CASE("one dataset under many names, and the limit on all tensors") {
  const TemporaryDirectory dir;
  const auto path = dir / "f.h5";
  write_edited(
      path,
      [](hid_t f) {
        for (int i = 0; i < 20; ++i) {
          const std::string name = "/stages/copy" + std::to_string(i);
          H5Lcreate_hard(f, "/golden/o", f, name.c_str(), H5P_DEFAULT, H5P_DEFAULT);
        }
      },
      8000);
  check_refused(path, ErrorKind::kUnsafe, "/stages/copy1", "share no storage", "bytes stored");
  write_fixture(path, small_fixture());
  check_refused(path, ErrorKind::kUnsafe, "/inputs/initial_state",
                "at most 400 bytes in all tensors", "288 bytes of shape [3,2,3,4] after 168",
                {.max_bytes = 400});
}

}  // namespace
}  // namespace goldenrule::schema
