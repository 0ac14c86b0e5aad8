//! The network: libp2p, one file per protocol.
