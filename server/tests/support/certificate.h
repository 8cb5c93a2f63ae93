// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/x509.h>

#include <cstdio>
#include <string>

namespace verge::server::test {

/// Writes a key, and a certificate for localhost that is signed with it.
inline void make_certificate(const std::string& certificate, const std::string& key, long serial) {
  EVP_PKEY* const pair = EVP_EC_gen("P-256");
  X509* const made = X509_new();
  ASN1_INTEGER_set(X509_get_serialNumber(made), serial);
  X509_gmtime_adj(X509_getm_notBefore(made), -3600);
  X509_gmtime_adj(X509_getm_notAfter(made), 86'400);
  X509_set_pubkey(made, pair);
  X509_NAME* const name = X509_get_subject_name(made);
  X509_NAME_add_entry_by_txt(name, "CN", MBSTRING_ASC,
                             reinterpret_cast<const unsigned char*>("localhost"), -1, -1, 0);
  X509_set_issuer_name(made, name);
  X509_sign(made, pair, EVP_sha256());
  std::FILE* out = std::fopen(certificate.c_str(), "w");
  PEM_write_X509(out, made);
  std::fclose(out);
  out = std::fopen(key.c_str(), "w");
  PEM_write_PrivateKey(out, pair, nullptr, nullptr, 0, nullptr, nullptr);
  std::fclose(out);
  X509_free(made);
  EVP_PKEY_free(pair);
}

}  // namespace verge::server::test
