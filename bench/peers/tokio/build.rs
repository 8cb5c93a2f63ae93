//! The version of tokio that is linked, out of the lock file that cargo has just written.

fn main() {
    let lock = std::fs::read_to_string("Cargo.lock").unwrap_or_default();
    let mut lines = lock.lines().skip_while(|l| *l != "name = \"tokio\"");
    let version = lines.nth(1).unwrap_or("").trim_start_matches("version = ").trim_matches('"');
    println!("cargo:rustc-env=TOKIO_VERSION={version}");
    println!("cargo:rerun-if-changed=Cargo.lock");
}
