"""Which segments a query reads, and what each of its tasks reads of them."""
