//! What a mesh costs and how soon it knows, against its size: the very core of the daemon in
//! virtual time, from ten nodes to ten thousand on one thread.
//!
//! A run begins with a mesh whose members know one another (ten thousand joins, one after the
//! other, would say nothing of it), lets it find a controller, and then measures one thing after
//! the other. All that it says but the speed is decided by the seed. `docs/scale.md` reads it.

pub(crate) mod command;
pub mod figures;
mod gossip;
mod mesh;
mod phases;
mod plot;
mod table;
mod watch;

use self::figures::Figures;
use self::phases::Run;

/// Measures a mesh of so many nodes; `told` hears what is being done.
///
/// # Errors
/// If the mesh does not become one.
pub fn measure(nodes: usize, seed: u64, told: &mut dyn FnMut(&str)) -> Result<Figures, String> {
    Run::new(nodes, seed, told).measure()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn quietly(nodes: usize) -> Figures {
        let figures = measure(nodes, 1, &mut |_| {}).unwrap();
        Figures { virtual_per_real_second: 0.0, ..figures }
    }

    #[test]
    fn small_meshes_become_one_and_the_same_seed_gives_the_same_figures() {
        let (ten, fifty) = (quietly(10), quietly(50));
        for figures in [&ten, &fifty] {
            assert_eq!(figures.false_deaths, 0);
            assert!(figures.failover_kill.p99_ms < 1_500.0, "{figures:?}");
            assert!(figures.change_all.p99_ms < 100.0, "{figures:?}");
        }
        assert_eq!(ten, quietly(10));
    }

    #[test]
    fn what_an_idle_node_pays_hardly_grows_with_the_mesh() {
        let (ten, hundred) = (quietly(10), quietly(100));
        assert!(hundred.idle.messages < ten.idle.messages * 1.5, "{ten:?} {hundred:?}");
        assert!(hundred.idle.bytes < ten.idle.bytes * 1.5, "{ten:?} {hundred:?}");
        assert_eq!(hundred.idle.dials, 0.0);
    }
}
