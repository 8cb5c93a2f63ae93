// SPDX-License-Identifier: Apache-2.0

// The example server's parser: the table of requests that servers parse differently, split in all
// ways; limits; and the contents of a request.

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <random>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include <http1/request_parser.h>
#include <http_server/request_table.h>
#include <support/scale.h>

namespace verge::test {
namespace {

using http::limits;
using http::memory_budget;
using http::memory_share;
using http::request_parser;
using http::step;

/// The result of a stream of bytes: "200" for each accepted request, with its contents, and the
/// status of the failure that ended it, or "waits".
struct outcome {
  std::vector<std::string> statuses;
  std::vector<std::string> said;

  bool operator==(const outcome&) const = default;
  std::string text() const {
    std::string all;
    for (const std::string& s : statuses) all.append(all.empty() ? "" : " ").append(s);
    return all;
  }
};
void PrintTo(const outcome& o, std::ostream* to) {
  *to << '"' << o.text() << '"';
  for (const std::string& s : o.said) *to << "\n  " << s;
}

std::string summary(const http::request& r) {
  std::string all;
  for (const std::string_view part : {r.method(), r.target(), r.path(), r.query(), r.host(),
                                      r.header_lines(), r.body(), r.header("connection")})
    all.append(part).append("|");
  return all + std::to_string(r.version()) + (r.keep_alive() ? " stays" : " closes");
}

/// Feeds the pieces one after the other.
outcome parse(const std::vector<std::string_view>& pieces, const limits& l = {},
              memory_share* share = nullptr) {
  request_parser parser(l, share);
  outcome o;
  for (std::string_view rest : pieces) {
    while (!rest.empty()) {
      const auto [used, what] = parser.feed(rest);
      EXPECT_LE(used, rest.size());
      rest.remove_prefix(std::min(used, rest.size()));
      if (what == step::more) {
        EXPECT_TRUE(rest.empty()) << "it wants more and leaves " << rest.size();
        break;
      }
      if (what == step::expects_continue) o.said.emplace_back("expects 100");
      if (what == step::failed) {
        EXPECT_FALSE(parser.reason().empty());
        o.statuses.push_back(std::to_string(parser.status()));
        o.said.emplace_back(parser.reason());
        return o;
      }
      if (what == step::complete) {
        o.statuses.emplace_back("200");
        o.said.push_back(summary(parser.current()));
        const bool stays = parser.current().keep_alive();
        parser.next();
        if (!stays) return o;
      }
    }
  }
  if (parser.inside() && o.statuses.empty()) o.statuses.emplace_back("waits");
  return o;
}

std::vector<std::string_view> bytes_of(std::string_view text) {
  std::vector<std::string_view> all;
  for (std::size_t i = 0; i < text.size(); ++i) all.push_back(text.substr(i, 1));
  return all;
}

/// For the parser, a request for a missing page or with a wrong method is valid.
std::string without_pages(const std::string& ours) {
  return ours == "404" || ours == "405" ? "200" : ours;
}

// ---- The table ----------------------------------------------------------------------------------

TEST(request_parser, answers_as_the_table_says) {
  for (const table_row& row : request_table())
    EXPECT_EQ(parse({row.bytes}).text(), without_pages(row.ours)) << row.what;
}

TEST(request_parser, gives_the_same_result_for_any_split_of_the_bytes) {
  for (const table_row& row : request_table()) {
    const outcome whole = parse({row.bytes});
    EXPECT_EQ(parse(bytes_of(row.bytes)), whole) << row.what;
    for (std::size_t i = 1; i < row.bytes.size(); ++i) {
      const std::string_view all = row.bytes;
      ASSERT_EQ(parse({all.substr(0, i), all.substr(i)}), whole) << row.what << ", cut at " << i;
    }
  }
}

bool is_taken(const std::string& answer) { return answer.starts_with('2') || answer == "waits"; }

TEST(request_table, rejects_what_go_or_nginx_reject) {
  for (const table_row& row : request_table()) {
    // RFC 9112 2.2: a server should ignore an empty line before a request.
    if (row.what == "an empty line before a request") continue;
    if (!is_taken(row.go) || !is_taken(row.nginx)) {
      EXPECT_FALSE(is_taken(row.ours)) << row.what;
    }
  }
}

TEST(request_table, is_the_table_of_the_document) {
  std::string table = "| request | verge | Go | nginx |\n|---|---|---|---|\n";
  std::string section;
  for (const table_row& row : request_table()) {
    if (std::exchange(section, row.section) != row.section)
      table.append("| **").append(row.section).append("** | | | |\n");
    for (const std::string& cell : {row.what, row.ours, row.go, row.nginx})
      table.append("| ").append(cell).append(" ");
    table.append("|\n");
  }
  std::ifstream file(VERGE_HTTP_DOCUMENT);
  const std::string document{std::istreambuf_iterator<char>(file), {}};
  EXPECT_NE(document.find(table), document.npos)
      << VERGE_HTTP_DOCUMENT << " has another table than this:\n"
      << table;
}

// Rows with bytes changed, removed and doubled: the result is the same when fed byte by byte, and
// the sanitizers find nothing.
TEST(request_parser, gives_the_same_result_for_any_split_of_noise) {
  const std::vector<table_row> rows = request_table();
  constexpr std::string_view spice{"\r\n\t\0 :;,0159aAzZ/?%\"\x7f\xff", 22};
  std::mt19937 random(20'240'601);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int i = 0; i < scale(60'000, 6'000); ++i) {
    std::string bytes = rows[below(rows.size())].bytes + rows[below(rows.size())].bytes;
    for (std::size_t changes = 1 + below(3); changes > 0; --changes) {
      const std::size_t at = below(bytes.size());
      switch (below(3)) {
        case 0:
          bytes[at] = spice[below(spice.size())];
          break;
        case 1:
          bytes.erase(at, 1 + below(3));
          break;
        default:
          bytes.insert(at, 1 + below(2), spice[below(spice.size())]);
      }
      if (bytes.empty()) bytes.push_back(spice[0]);
    }
    const std::string_view all = bytes;
    const std::size_t cut = below(all.size());
    const outcome whole = parse({all});
    ASSERT_EQ(parse(bytes_of(all)), whole) << testing::PrintToString(bytes);
    ASSERT_EQ(parse({all.substr(0, cut), all.substr(cut)}), whole)
        << testing::PrintToString(bytes) << ", cut at " << cut;
  }
}

// ---- Limits -------------------------------------------------------------------------------------

const std::string chunked = "POST /echo HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n";

std::string status_of(const std::string& bytes, const limits& l = {}) {
  const std::string at_once = parse({bytes}, l).text();
  EXPECT_EQ(parse(bytes_of(bytes), l).text(), at_once);
  return at_once;
}

TEST(request_parser, refuses_what_is_too_large) {
  const std::string much(9'000, 'a');
  const limits small{.header_bytes = 8'000, .headers = 3, .body_bytes = 10};
  EXPECT_EQ(status_of("GET /" + much), "431") << "a target, before its line has ended";
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nX: " + much), "431");
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nB: 2\r\n\r\n", small), "200");
  EXPECT_EQ(status_of("GET / HTTP/1.1\r\nHost: x\r\nA: 1\r\nB: 2\r\nC: 3\r\n\r\n", small), "431");
  EXPECT_EQ(status_of(chunked + "0\r\nA: 1\r\n\r\n", small), "200");
  EXPECT_EQ(status_of(chunked + "0\r\nA: 1\r\nB: 2\r\n\r\n", small), "431") << "with trailers";
  EXPECT_EQ(status_of(chunked + "0\r\nA: " + much), "431");
  EXPECT_EQ(status_of(chunked + "1;" + much), "431");
  std::string extensions = chunked;
  for (int i = 0; i < 1'000; ++i) extensions += "1;abcdefghi\r\na\r\n";
  EXPECT_EQ(status_of(extensions), "431") << "extensions, however they are spread";

  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n0123456789", small),
            "200");
  EXPECT_EQ(status_of("POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 11\r\n\r\n", small), "413");
  EXPECT_EQ(status_of(chunked + "5\r\n01234\r\n5\r\n01234\r\n0\r\n\r\n", small), "200");
  EXPECT_EQ(status_of(chunked + "5\r\n01234\r\n6\r\n", small), "413");
  EXPECT_EQ(status_of(chunked + "b\r\n", small), "413");
}

// A head of exactly the limit is accepted, and one byte more is not.
TEST(request_parser, counts_the_head_to_the_byte) {
  const std::string head = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
  EXPECT_EQ(status_of(head, {.header_bytes = head.size()}), "200");
  EXPECT_EQ(status_of(head, {.header_bytes = head.size() - 1}), "431");
  EXPECT_EQ(status_of(head + head, {.header_bytes = head.size()}), "200 200") << "for each request";
}

TEST(request_parser, counts_its_buffers_and_frees_them) {
  memory_budget budget(100'000);
  memory_share share(budget, 1'000);
  const limits l;
  request_parser parser(l, &share);
  const auto post = [](int n) {
    return "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(n) + "\r\n\r\n";
  };
  EXPECT_EQ(parser.feed(post(50'000)).what, step::more);
  EXPECT_EQ(budget.used(), 1'000U) << "an announced length takes no memory";
  EXPECT_EQ(parser.feed(std::string(49'999, 'a')).what, step::more);
  EXPECT_GE(budget.used(), 1'000U + 49'999U);
  EXPECT_LE(budget.used(), 1'000U + 51'000U) << "and no more than was announced";
  EXPECT_EQ(parser.feed("a").what, step::complete);
  parser.next();
  EXPECT_EQ(budget.used(), 1'000U);

  memory_share another(budget, 60'000);
  EXPECT_EQ(parser.feed(post(50'000)).what, step::more);
  EXPECT_EQ(parser.feed(std::string(50'000, 'a')).what, step::failed);
  EXPECT_EQ(parser.status(), 503);
}

TEST(memory_share, counts_what_it_holds_and_refuses_what_does_not_fit) {
  memory_budget budget(100);
  {
    memory_share a(budget, 10);
    memory_share b(budget, 10);
    EXPECT_TRUE(a.hold(memory_share::request, 50));
    EXPECT_FALSE(b.hold(memory_share::answer, 31));
    EXPECT_TRUE(b.hold(memory_share::answer, 30));
    EXPECT_EQ(budget.used(), 100U);
    EXPECT_TRUE(a.hold(memory_share::request, 20));
    EXPECT_TRUE(a.hold(memory_share::answer, 30));
    EXPECT_EQ(budget.used(), 100U);
    memory_share always(budget, 10);
    EXPECT_EQ(budget.used(), 110U);
    EXPECT_FALSE(a.hold(memory_share::answer, 31)) << "beyond the limit";
    EXPECT_TRUE(a.hold(memory_share::answer, 0));
  }
  EXPECT_EQ(budget.used(), 0U);
}

// ---- What a request says ------------------------------------------------------------------------

struct parsed {
  explicit parsed(std::string_view bytes) : parser(l) {
    const auto [used, what] = parser.feed(bytes);
    EXPECT_EQ(what, step::complete) << parser.reason();
    EXPECT_EQ(used, bytes.size());
  }
  const http::request* operator->() const { return &parser.current(); }

  limits l;
  request_parser parser;
};

TEST(request_parser, finds_path_query_and_host_in_every_form_of_a_target) {
  const parsed origin("GET /a/b?c=d?e HTTP/1.1\r\nHost: one\r\n\r\n");
  EXPECT_EQ(origin->path(), "/a/b");
  EXPECT_EQ(origin->query(), "c=d?e");
  EXPECT_EQ(origin->host(), "one");
  EXPECT_EQ(origin->target(), "/a/b?c=d?e");
  const parsed absolute("GET HTTP://two:80/a?b HTTP/1.1\r\nHost: one\r\n\r\n");
  EXPECT_EQ(absolute->path(), "/a");
  EXPECT_EQ(absolute->query(), "b");
  EXPECT_EQ(absolute->host(), "two:80") << "the authority counts, and not Host";
  const parsed bare("GET http://two?b HTTP/1.1\r\nHost: one\r\n\r\n");
  EXPECT_EQ(bare->path(), "/");
  EXPECT_EQ(bare->query(), "b");
  const parsed server("OPTIONS * HTTP/1.1\r\nHost: one\r\n\r\n");
  EXPECT_EQ(server->path(), "*");
  const parsed old("GET / HTTP/1.0\r\n\r\n");
  EXPECT_EQ(old->host(), "");
}

TEST(request_parser, finds_headers_whatever_the_case_of_their_names) {
  const parsed r("GET / HTTP/1.1\r\nHost: x\r\nX-Some:  a b \t\r\nx-some: c\r\nX-S:\r\n\r\n");
  EXPECT_EQ(r->header("x-SOME"), "a b") << "the first of them";
  EXPECT_EQ(r->header("x-s"), "");
  EXPECT_EQ(r->header("x"), "");
  EXPECT_EQ(r->header("host"), "x");
  EXPECT_EQ(r->header_lines(), "Host: x\r\nX-Some:  a b \t\r\nx-some: c\r\nX-S:\r\n");
}

TEST(request_parser, decides_whether_the_connection_stays) {
  const auto stays = [](const std::string& version, const std::string& header) {
    return parsed("GET / HTTP/" + version + "\r\nHost: x\r\n" + header + "\r\n")->keep_alive();
  };
  EXPECT_TRUE(stays("1.1", ""));
  EXPECT_TRUE(stays("1.1", "Connection: keep-alive\r\n"));
  EXPECT_FALSE(stays("1.1", "Connection: close\r\n"));
  EXPECT_FALSE(stays("1.1", "Connection: x, CLOSE\r\n"));
  EXPECT_FALSE(stays("1.1", "Connection: keep-alive\r\nConnection: close\r\n"));
  EXPECT_FALSE(stays("1.0", ""));
  EXPECT_TRUE(stays("1.0", "Connection: Keep-Alive\r\n"));
  EXPECT_FALSE(stays("1.0", "Connection: keep-alive, close\r\n"));
  EXPECT_TRUE(stays("1.1", "Proxy-Connection: close\r\n")) << "which is not handled here";
}

TEST(request_parser, is_not_changed_by_trailers) {
  const parsed r(chunked +
                 "5\r\nhello\r\n0\r\nConnection: close\r\nHost: y\r\nX: z\r\nExpect: a\r\n\r\n");
  EXPECT_TRUE(r->keep_alive());
  EXPECT_EQ(r->host(), "x");
  EXPECT_EQ(r->header("x"), "");
  EXPECT_EQ(r->body(), "hello");
}

TEST(request_parser, says_when_the_client_waits_for_100_continue) {
  const auto steps = [](const std::string& bytes) {
    const limits l;
    request_parser parser(l);
    return parser.feed(bytes).what;
  };
  const std::string rest = "Host: x\r\nExpect: 100-Continue\r\n";
  EXPECT_EQ(steps("POST / HTTP/1.1\r\n" + rest + "Content-Length: 2\r\n\r\n"),
            step::expects_continue);
  EXPECT_EQ(steps("POST / HTTP/1.1\r\n" + rest + "Transfer-Encoding: chunked\r\n\r\n"),
            step::expects_continue);
  EXPECT_EQ(steps("POST / HTTP/1.0\r\n" + rest + "Content-Length: 2\r\n\r\n"), step::more)
      << "HTTP/1.0 does not know it";
  EXPECT_EQ(steps("POST / HTTP/1.1\r\n" + rest + "Content-Length: 0\r\n\r\n"), step::complete);
  EXPECT_EQ(steps("POST / HTTP/1.1\r\n" + rest + "\r\n"), step::complete) << "there is no body";
  EXPECT_EQ(parse({"POST / HTTP/1.1\r\n" + rest + "Content-Length: 2\r\n\r\nab"}).said.front(),
            "expects 100");
}

TEST(request_parser, is_inside_of_a_request_from_its_first_byte_to_its_last) {
  const limits l;
  request_parser parser(l);
  parser.feed("\r\n\r\n\r");
  EXPECT_FALSE(parser.inside()) << "empty lines begin nothing";
  parser.feed("\nG");
  EXPECT_TRUE(parser.inside());
  EXPECT_EQ(parser.feed("ET / HTTP/1.1\r\nHost: x\r\n\r\n").what, step::complete);
  EXPECT_FALSE(parser.inside());
  parser.next();
  EXPECT_FALSE(parser.inside());
}

}  // namespace
}  // namespace verge::test
