"""What tests need from the inside: failpoints. Shipped, so that users can test their own assets the same way."""
