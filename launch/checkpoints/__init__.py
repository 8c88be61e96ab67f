"""How is a training kept to go on later? In folders that any plan can write and read."""
