//! Compiles our own schema files with a compiler written in Rust, so that no `protoc` has to be installed.

fn main() -> Result<(), Box<dyn std::error::Error>> {
    println!("cargo::rerun-if-changed=proto");
    let schemas = ["clientappio.proto", "control.proto", "fleet.proto", "runtime.proto", "serverappio.proto"];
    let files = protox::compile(schemas, ["proto"])?;
    // Servers are ours: the front ends read these messages themselves, over gRPC and HTTP alike.
    tonic_prost_build::configure()
        .bytes(".")
        .btree_map(".")
        .build_server(false)
        .build_transport(false)
        .compile_fds(files)?;
    Ok(())
}
