"""Read captures and recordings without Spark: messages in order, with answers, broken rules and what is not recognised."""
