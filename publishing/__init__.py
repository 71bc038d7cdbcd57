"""Publishing: schedule of the steps, publications, and the services that show them."""
