// SPDX-License-Identifier: Apache-2.0

#include "token_command.h"

#include <cstdio>
#include <stdexcept>

#include "broker/committer.h"
#include "doors/token.h"
#include "text/time_text.h"

namespace verge::server {

token_command::token_command(CLI::App& tool) {
  token_ = tool.add_subcommand("token", "Tokens for the task server: what their holders may do");
  token_->require_subcommand(1);
  token_->add_option("--file", file_, "The file that `verge serve --tokens` reads")
      ->capture_default_str();
  add_ = token_->add_subcommand("add", "Make a token and print it: it is stored nowhere");
  add_->add_option("NAME", name_, "What it is for")->required();
  add_->add_option("--scope", scopes_, "read, put, work, admin")
      ->required()
      ->delimiter(',')
      ->check(CLI::IsMember({"read", "put", "work", "admin"}));
  add_->add_option("--tube", tubes_, "Only these tubes: names, or beginnings with a star")
      ->delimiter(',');
  add_->add_option("--expires", expires_, "After so long, like 30d; or a time of RFC 3339");
  add_->add_option("--limit", per_second_, "Requests a second");
  list_ = token_->add_subcommand("list", "The tokens of the file, without their secrets");
  revoke_ = token_->add_subcommand("revoke", "Take a token back");
  revoke_->add_option("NAME", name_, "Its name or id")->required();
}

int token_command::run() {
  if (add_->parsed()) return add();
  return list_->parsed() ? list() : revoke();
}

int token_command::add() {
  token_record r;
  r.name = name_;
  for (const std::string& s : scopes_) r.scopes.push_back(*scope_named(s));
  r.tubes = tubes_;
  r.per_second = per_second_;
  const wall_time now = wall_now();
  if (!expires_.empty()) {
    const auto length = parse_duration(expires_, second);
    const auto time = parse_rfc3339(expires_);
    if (!length && !time) {
      throw std::invalid_argument("'" + expires_ +
                                  "' is neither a length like 30d nor a time like "
                                  "2030-01-31T00:00:00Z");
    }
    r.expires = length ? due_after(now, *length) : *time;
  }
  std::string text;
  token_file::change(file_, [&](token_file& file) { text = file.add(r, now); });
  std::printf("%s\n", text.c_str());
  return 0;
}

int token_command::list() const {
  const token_file file = token_file::read(file_);
  for (const token_record& r : file.tokens()) {
    std::string line = r.id + "  " + r.name + "  ";
    for (const scope s : r.scopes) line.append(s == r.scopes.front() ? "" : ",").append(name_of(s));
    line += "  tubes ";
    if (r.tubes.empty()) line += "all";
    for (const std::string& t : r.tubes) line.append(&t == &r.tubes.front() ? "" : ",").append(t);
    line.append("  expires ").append(r.expires == 0 ? "never" : format_rfc3339(r.expires));
    if (r.per_second != 0)
      line.append("  limit ").append(std::to_string(r.per_second)).append("/s");
    std::printf("%s\n", line.c_str());
  }
  return 0;
}

int token_command::revoke() {
  token_file::change(file_, [&](token_file& file) {
    if (file.revoke(name_)) return;
    throw std::invalid_argument("there is no token '" + name_ + "' in " + file_ +
                                ": `verge token list` shows them");
  });
  std::printf("revoked\n");
  return 0;
}

}  // namespace verge::server
