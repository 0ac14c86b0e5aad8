//! What the model of leases must be able to do, so that it is not safe for want of anything to
//! happen.

/// Nothing worth a name.
pub(super) const ANYTHING: u32 = 0;
/// Both jobs end well.
pub(super) const BOTH_SUCCEED: u32 = 1;
/// Both GPUs have a lease at once.
pub(super) const BOTH_LEASED: u32 = 2;
/// A node refuses a grant for a GPU that is, or was, leased to another.
pub(super) const TAKEN: u32 = 3;
/// A node refuses an attempt that it has seen or forsworn.
pub(super) const OLD_ATTEMPT: u32 = 4;
/// A node refuses the grant of the lower of two rival reigns.
pub(super) const RIVAL: u32 = 5;
/// A node refuses who presents a grant, or where.
pub(super) const THIEF: u32 = 6;
/// A node says that it does not know a task.
pub(super) const UNKNOWN: u32 = 7;
/// A later attempt than the first runs.
pub(super) const LATER_ATTEMPT: u32 = 8;
/// A node refuses a grant for an earlier start of it.
pub(super) const OTHER_START: u32 = 9;
/// A node finds a task again that survived its daemon.
pub(super) const ADOPTED: u32 = 10;
/// A job ends without anybody knowing how.
pub(super) const LOST: u32 = 11;
/// A job ends without ever having run.
pub(super) const REJECTED: u32 = 12;
/// A node is presented again with what it has leased already.
pub(super) const RESUMED: u32 = 13;

/// Their names, by their numbers.
pub(super) const NAMES: [&str; 14] = [
    "anything",
    "both jobs succeed",
    "both GPUs are leased at once",
    "a GPU that is taken is refused",
    "an attempt that is over is refused",
    "a rival's grant is refused",
    "a stolen grant is refused",
    "a task is not known",
    "a later attempt runs",
    "a grant for an earlier start is refused",
    "a task is found again",
    "a job is lost",
    "a job never runs",
    "a task is accepted again",
];
