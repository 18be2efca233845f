//! Compiles our own schema files with a compiler written in Rust, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let files = protox::compile(["control.proto", "fleet.proto", "serverappio.proto"], ["proto"])?;
    tonic_prost_build::configure().bytes(".").btree_map(".").build_transport(false).compile_fds(files)?;
    Ok(())
}
