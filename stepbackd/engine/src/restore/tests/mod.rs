//! Plans made and carried out on real directories with a real store.

#![allow(
    clippy::disallowed_methods,
    reason = "children of a test, and how long it runs, are steered by the environment"
)]

mod combinations;
mod faults;
mod halfway;
mod hostile;
mod planning;
mod property;
mod putting_back;
mod recovering;
mod speed;
mod support;
