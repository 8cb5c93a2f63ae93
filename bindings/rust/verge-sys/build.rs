//! Tells the linker where libverge-c is: in VERGE_C_LIB_DIR, or where pkg-config says, or in the
//! system's own folders.

use std::{env, process::Command};

fn main() {
    println!("cargo:rerun-if-env-changed=VERGE_C_LIB_DIR");
    println!("cargo:rustc-link-lib=dylib=verge-c");
    if let Ok(folder) = env::var("VERGE_C_LIB_DIR") {
        println!("cargo:rustc-link-search=native={folder}");
        return;
    }
    let said = Command::new("pkg-config").args(["--variable=libdir", "verge-c"]).output();
    if let Ok(output) = said {
        if output.status.success() {
            let folder = String::from_utf8_lossy(&output.stdout);
            println!("cargo:rustc-link-search=native={}", folder.trim());
        }
    }
}
