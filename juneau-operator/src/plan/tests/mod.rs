//! Rules of the plan.
