// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <thread>

#include "contract.h"
#include "http_wire.h"
#include "serve/server.h"

/// A server with HTTP, in the test.
namespace verge::server::test {

class web_fixture : public testing::Test {
 protected:
  void SetUp() override {
    std::string name = (std::filesystem::temp_directory_path() / "verge-web-XXXXXX").string();
    ASSERT_NE(::mkdtemp(name.data()), nullptr);
    dir_ = name;
    options_.listen = endpoint::loopback(0);
    options_.directory = dir_ / "tasks";
    options_.mode = durability::written;  // a test does not lose power
    options_.http.emplace().listen = endpoint::loopback(0);
  }
  void TearDown() override {
    forget_connection();
    server_.reset();
    std::filesystem::remove_all(dir_);
  }
  void start() { server_ = std::make_unique<task_server>(options_); }
  void restart() {
    forget_connection();
    server_.reset();
    start();
  }
  std::uint16_t port() const { return server_->http_address()->port(); }
  /// A connection that stays.
  http_wire& web() {
    if (web_ == nullptr) web_ = std::make_unique<http_wire>(port());
    return *web_;
  }
  void forget_connection() { web_.reset(); }

  http_answer put(const std::string& tube, const std::string& body) {
    std::string escaped;
    for (const char c : tube) escaped += c == '/' ? "%2F" : std::string(1, c);
    return web().ask("POST", "/v1/tubes/" + escaped + "/tasks", body);
  }
  static std::string lease_path(const nlohmann::json& task, const std::string& verb) {
    return "/v1/leases/" + task["lease"].get<std::string>() + "/" + verb;
  }

  /// Asks, and holds the response to the contract.
  http_answer expect(int status, const std::string& method, const std::string& path,
                     const std::string& target, const std::string& body = "") {
    return judge(status, method, path, web().ask(method, target, body));
  }
  http_answer judge(int status, const std::string& method, const std::string& path, http_answer a) {
    EXPECT_EQ(a.status, status) << method << " " << path << ": " << a.body;
    EXPECT_EQ(contract_.fault(method, path, a), "") << method << " " << path << ": " << a.body;
    return a;
  }

  template <class F>
  static void wait_until(F holds) {
    while (!holds()) std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }

  contract contract_{VERGE_OPENAPI};
  std::filesystem::path dir_;
  server_options options_;
  std::unique_ptr<task_server> server_;
  std::unique_ptr<http_wire> web_;
};

}  // namespace verge::server::test
