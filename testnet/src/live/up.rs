//! A mesh to play with: kept running until Ctrl-C.

use anyhow::{Result, ensure};
use clap::Args;

use super::command::print;
use super::mesh::{Mesh, Program};
use super::talk::Talk;

/// What mesh to start.
#[derive(Debug, Args)]
pub struct Arguments {
    /// How many nodes.
    #[arg(long, default_value_t = 3, value_name = "N")]
    nodes: usize,
    /// The simulated GPUs of each node, e.g. 4xA100-80G,2xRTX4090-24G; `none` for none.
    #[arg(long, default_value = "2xA100-80G", value_name = "SPEC")]
    gpus: String,
}

/// The most nodes that one machine is asked to carry.
const NODES_MAX: usize = 100;

/// Starts the mesh, tells how to use it, and waits to be interrupted.
///
/// # Errors
/// If the mesh does not come up.
pub async fn run(program: &Program, arguments: &Arguments) -> Result<()> {
    ensure!(
        (1..=NODES_MAX).contains(&arguments.nodes),
        "--nodes {} is out of range: 1 to {NODES_MAX} nodes fit on one machine",
        arguments.nodes
    );
    let gpus = match arguments.gpus.as_str() {
        "none" => "none".to_owned(),
        spec => format!("sim:{}", spec.trim_start_matches("sim:")),
    };
    let talk = Talk::new(false);
    let mut mesh = Mesh::empty()?;
    for number in 1..=arguments.nodes {
        let name = format!("n{number}");
        talk.step(&format!("starting {name}"));
        mesh.add(program, &name, &["--gpus", &gpus]).await?;
    }
    let controller = mesh.settle().await?;
    talk.done(&format!("{} nodes see each other; {controller} is the controller", arguments.nodes));
    print(&instructions(&mesh, program))?;
    std::future::pending().await
}

fn instructions(mesh: &Mesh, program: &Program) -> String {
    let prefix: Vec<_> = program.prefix.iter().map(|word| word.to_string_lossy()).collect();
    let root = mesh.root().display();
    format!(
        "\nThe mesh runs until Ctrl-C, which removes it with its tasks and files. In another \
         terminal:\n\n  \
         alias gpuvine='{} {}'\n  \
         gpuvine --dir {root}/n1 gpus\n  \
         gpuvine --dir {root}/n1 run --gpus 1 -- \
         sh -c 'echo GPU $CUDA_VISIBLE_DEVICES of $GPUVINE_NODE'\n  \
         gpuvine --dir {root}/n1 status\n\n\
         Each node is a folder of {root}, n1 to n{}; its log is beside it.",
        program.path.display(),
        prefix.join(" "),
        mesh.nodes.len()
    )
}
