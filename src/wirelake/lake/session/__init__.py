"""Start a Spark session: settings, JVM, SPARK_HOME, scratch folders."""
