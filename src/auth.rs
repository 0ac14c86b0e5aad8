//! Who belongs to a mesh: tickets, tokens, endorsements. Pure; `now` is an argument.
